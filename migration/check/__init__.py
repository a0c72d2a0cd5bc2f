"""`migrate check`: the pre-merge checklist of a slice as rules, each with its evidence.

`subject` is what is looked at, `rules` look, `run` puts their answers together and applies the waivers;
the renderers make terminal text, JSON, SARIF, Markdown and JUnit of the one `Report`. Nothing here reads
a file or asks git but `migration.commands.check`, which hands over a tree.
"""
