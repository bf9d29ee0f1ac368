"""What a rehearsal needs: stand-in server, simulated agent, example repository, templates."""
