"""moto's services behind one WSGI application, where a service that moto does not have is refused by its name."""

from __future__ import annotations

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app


class UnknownService(NotImplementedError):
    """A request of a service that nothing here answers for."""

    def __init__(self, service: str) -> None:
        super().__init__(f"the local account does not have the service {service!r}")


class MotoServices(DomainDispatcherApplication):
    """moto's own prints a line, and fails in a way that clients take for a passing one and try again."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)

    def get_backend_for_host(self, host: str | None) -> object:
        """The name of moto's backend. Raises `UnknownService`."""
        for backend, pattern in self.backend_url_patterns if host else ():
            if pattern.match(f"http://{host}"):
                return backend
        if host and "amazonaws.com" in host:
            raise UnknownService(host.partition(".")[0])
        return super().get_backend_for_host(host)
