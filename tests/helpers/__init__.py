"""What the tests share: references, stand-ins for devices and servers, writers of files."""
