"""The bytes of records.

urls.py            local files and those at any URL: opened, looked for, listed
reader.py          of files and URLs, tried again where it helps
remote.py          what another machine holds at a URL
cache.py           keeps whole remote files in a folder
"""
