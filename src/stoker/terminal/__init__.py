"""What every command of ours uses on a terminal: parsing, printing, plotting."""
