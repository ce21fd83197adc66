"""The HTTP server, its log, and moto's services behind one WSGI application."""
