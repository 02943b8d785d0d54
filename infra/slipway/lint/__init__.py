"""Rules that a stack, its release and its platforms are judged by before anything is touched. One module a subject."""
