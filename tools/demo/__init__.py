"""The whole main job, live: `python -m tools.demo`."""
