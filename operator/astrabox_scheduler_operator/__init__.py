"""The operator: it watches DeploymentSchedules and creates a RunInvocation at every due time.

Data flows one way: watch -> index -> decide -> write. `app` wires the parts; each of the others can
be driven by a test on its own.
"""
