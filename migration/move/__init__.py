"""Moving a section into its handler module: refusals, text, imports, Protocols, proof."""
