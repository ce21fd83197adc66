"""moto's services behind one WSGI application; a service that moto does not have is rejected by name."""

from __future__ import annotations

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app


class UnknownService(NotImplementedError):
    """A request to a service that the account does not have."""

    def __init__(self, service: str) -> None:
        super().__init__(f"the local account does not have the service {service!r}")


class MotoServices(DomainDispatcherApplication):
    """moto's dispatcher, which for an unknown service prints a line and answers an error that clients retry."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)

    def get_backend_for_host(self, host: str | None) -> object:
        """Returns the name of moto's backend.

        Raises:
            UnknownService: moto has no backend for the host.
        """
        for backend, pattern in self.backend_url_patterns if host else ():
            if pattern.match(f"http://{host}"):
                return backend
        if host and "amazonaws.com" in host:
            raise UnknownService(host.partition(".")[0])
        return super().get_backend_for_host(host)
