"""Attributes that are made on first use become declared state: `migrate declare`."""
