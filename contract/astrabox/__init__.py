"""Stand-in for the part of AstraBox that a scheduler provider meets."""
