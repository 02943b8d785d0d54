"""What runs on a host, as root, from the content bundle: standard library only, Python 3.9 or newer, quick to start."""
