"""What AstraBox offers to the tests of a plug-in."""
