"""From the logits of a launch to tokens in rows: the host's pipeline, adaptive sampling and the token state machine.

docs/step.md has the token table, the stop reasons and the order of the pipeline.
"""
