"""What the provider and the operator share, and nothing that does IO.

The modules, in the order in which data flows through them:

* ``labels``, ``metadata``, ``schedule``, ``run``, ``lease``: the resources as values
* ``names``, ``payload``: how AstraBox's ids and payloads become names and text
* ``cron``, ``server_clock``, ``presence``: time, and who was there at a time
* ``firing``, ``assignment``, ``recovery``, ``transitions``, ``retention``: the decisions
* ``crd``: the CustomResourceDefinitions, generated from the models
"""
