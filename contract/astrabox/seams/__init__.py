"""The seams at which AstraBox takes plug-ins."""
