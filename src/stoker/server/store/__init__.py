"""What is durable, behind one port."""
