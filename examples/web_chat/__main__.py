"""Serve a page that chats with a trained model; see ``python -m examples.web_chat --help``."""

import argparse
import sys
import webbrowser
from pathlib import Path

from rich.console import Console

from shaderloom.runtime.plan.errors import ShaderloomError

from .bundle import build_bundle
from .site import build_page, serve

FOLDER = Path("build/web-chat")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev chat-demo --web", description="Chat with a trained model in a page.")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1; 0 takes any that is free")
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    arguments = parser.parse_args()
    if not 0 <= arguments.port <= 65535:
        parser.error("--port is 0 to 65535")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    errors = Console(stderr=True)
    try:
        page = build_page(FOLDER / "page")
        with errors.status("fetching the model") as status:
            bundle = build_bundle(FOLDER, lambda what, done, total: status.update(f"{what} (once; this takes minutes)"))
        with serve(page, bundle, arguments.port) as site:
            print(f"the page is at {site.url} (Ctrl-C ends)", flush=True)
            if arguments.open:
                webbrowser.open(site.url)
            site.wait()
    except KeyboardInterrupt:
        print()
    except (OSError, RuntimeError, ShaderloomError) as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
