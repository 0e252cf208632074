"""The REST API: pipeline files, status, requests and dead letters over HTTP, by the functions behind the commands.

May import every room but the command line's. Public: `application.app`, the ASGI application, and `application.serve`.
"""
