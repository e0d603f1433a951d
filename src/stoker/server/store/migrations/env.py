"""What Alembic runs for every command: the steps, on the connection and in the transaction that `migrate` gives."""

from alembic import context

from stoker.server.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
