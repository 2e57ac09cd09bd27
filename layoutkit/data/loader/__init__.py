"""Records got, processed and put together, batch after batch, on threads.

sampled.py         what is asked of a Batcher; its arguments, in arguments.py, are checked in
                   settings.py
batcher.py         a Batcher, of which passes.py is an epoch
drafts.py          a batch under way, in chunks.py, drawn by the threads in crew.py; what
                   belongs together is judged in judging.py, and joining.py joins results of
                   any size as collating.py says
feeds.py           one source of a Batcher; what is handed out is in batch.py
viewers.py         Views of one batch after the other, converted first as preparing.py says
"""
