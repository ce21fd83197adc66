"""Raw TCP that collates: what sockets.py does, and one copy of each batch before it is sent, in the thread that sends it."""

from sockets import main

if __name__ == "__main__":
    main(collate=True)
