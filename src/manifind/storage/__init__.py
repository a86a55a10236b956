"""The one door to the disk: folders with generations, checksums and atomic change.

`manifind.storage.disk` makes every call to the system that writes, flushes, renames or removes.
`manifind.storage.store` keeps a saved thing as a folder whose changes become visible in one step.
"""
