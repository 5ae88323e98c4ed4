"""A small typed client of the Kubernetes API, shared by provider and operator.

It knows the two resources of ours, Leases, Events and a few discovery calls, and nothing more. One
instance belongs to one event loop. Every failed call raises a member of `errors.ApiError`.
"""
