"""A package, unlike its neighbours: then pytest ends what its conftest starts when it leaves this folder."""
