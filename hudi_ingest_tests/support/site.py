"""Builds the documentation's site with mkdocs: `python -m hudi_ingest_tests.support.site FOLDER`. Fails for a warning and for a dead link.

Pages keep their places in the repository, so that their links work in both: what they link to is copied beside them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

import hudi_ingest

REPOSITORY = Path(__file__).parents[2]
SECTIONS: dict[str, tuple[str, ...]] = {
    "Get started": ("README.md", "docs/getting-started.md", "examples/README.md", "docs/glossary.md"),
    "Set up a pipeline": (
        "docs/formats.md",
        "docs/schema.md",
        "docs/keyed-tables.md",
        "docs/authentication.md",
        "docs/transforms.md",
        "docs/many-topics.md",
        "docs/take-over.md",
    ),
    "Deploy": (
        "docs/object-stores.md",
        "docs/catalogs.md",
        "docs/iceberg.md",
        "docs/readers.md",
        "docs/cluster.md",
        "deploy/README.md",
        "deploy/kubernetes/README.md",
    ),
    "Run it": (
        "docs/ui.md",
        "docs/operations.md",
        "docs/by-symptom.md",
        "docs/dead-letters.md",
        "docs/replay.md",
        "docs/moving-clusters.md",
        "docs/rest.md",
        "docs/metrics.md",
        "docs/trial-100-topics.md",
    ),
    "Reference": (
        "docs/README.md",
        "docs/configuration.md",
        "docs/api.md",
        "docs/stability.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ),
    "How it works": (
        "docs/design.md",
        "docs/guarantees.md",
        "docs/features.md",
        "docs/mutants.md",
        "docs/performance.md",
        "docs/measurements.md",
        "docs/scale.md",
        "docs/decisions/README.md",
        "CONTRIBUTING.md",
    ),
}
"""The pages in the order in which a reader needs them."""
_LINK = re.compile(r"(?<!`)(!?\[[^\]]*\]\()([^)\s]+)(\))")
_EXAMPLE = re.compile(r"^( *)>>> .*\n(?:\1(?!\"\"\").+\n)*", re.MULTILINE)
_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


_ABOUT_THE_PROJECT = (
    "docs/features.md",
    "docs/mutants.md",
    "docs/measurements.md",
    "docs/trial-100-topics.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
_LAST_IN_SEARCH = "---\nsearch:\n  boost: 0.2\n---\n\n"


def lay_out(pages: Path) -> None:
    """Write the pages, and the files that they link to, below a folder."""
    wanted = [REPOSITORY / page for section in SECTIONS.values() for page in section]
    forgotten = {*REPOSITORY.joinpath("docs").glob("*.md")} - {*wanted}
    if forgotten:
        sys.exit(f"no section of {__file__} has {', '.join(sorted(page.name for page in forgotten))}")
    found: list[Path] = []
    while wanted:
        source = wanted.pop(0)
        if source in found:
            continue
        found.append(source)
        place = pages / source.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copy(source, place)
            continue
        text = _generated(source) or source.read_text(encoding="utf-8")
        wanted += [target for _, target in links(source, text) if target.is_file() or _generated(target)]
        place.write_text(_less_found(source) + for_mkdocs(source, text), encoding="utf-8")


def _less_found(page: Path) -> str:
    """Front matter of pages about the project itself, so that the search names them after those that a user needs."""
    name = page.relative_to(REPOSITORY).as_posix()
    return _LAST_IN_SEARCH if name.startswith("docs/decisions/") or name in _ABOUT_THE_PROJECT else ""


def lay_out_code(folder: Path) -> None:
    """Copy the package's modules with the examples in their docstrings in fences, without which Markdown takes them for quotations."""
    for module in REPOSITORY.joinpath("hudi_ingest").rglob("*.py"):
        place = folder / module.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = module.read_text(encoding="utf-8")
        place.write_text(_EXAMPLE.sub(r"\1```python\n\g<0>\1```\n", text), encoding="utf-8")


def links(page: Path, text: str) -> Iterator[tuple[str, Path]]:
    """Yield the relative links of a page, and the file of each: a folder's is its README."""
    for found in _LINK.finditer(_FENCE.sub("", text)):
        link = found[2].partition("#")[0]
        if link and "://" not in link and not link.startswith("mailto:"):
            # Not resolved: a symbolic link has a place of its own.
            target = Path(os.path.normpath(page.parent / unquote(link)))
            yield found[2], _page_of(target) if target.is_dir() else target


def _page_of(folder: Path) -> Path:
    """A folder's README, or the first of its files."""
    readme = folder / "README.md"
    return readme if readme.exists() or _generated(readme) else min(file for file in folder.iterdir() if file.is_file())


def for_mkdocs(page: Path, text: str) -> str:
    """Name the file of a linked folder."""
    for link, target in {*links(page, text)}:
        path, mark, anchor = link.partition("#")
        if page.parent.joinpath(unquote(path)).is_dir():
            text = text.replace(f"]({link})", f"]({path.rstrip('/')}/{target.name}{mark}{anchor})")
    return text


def _generated(page: Path) -> str | None:
    name = page.relative_to(REPOSITORY).as_posix() if page.is_relative_to(REPOSITORY) else ""
    if name == "docs/decisions/README.md":
        files = sorted(page.parent.glob("0*.md"))
        titles = [file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for file in files]
        rows = "".join(f"- [{title}]({file.name})\n" for title, file in zip(titles, files, strict=True))
        return f"# Decisions\n\nWhere the code departs from the original plan, and why.\n\n{rows}"
    if name == "docs/api.md":
        parts = [f"::: {module}.{public}\n" for public, module in sorted(hudi_ingest._MODULES.items())]
        return (
            "# Python\n\nThe names that `from hudi_ingest import …` gives, and the errors of `hudi_ingest.exceptions`. "
            "[Stability](stability.md) says how long they stay.\n\n"
            + "\n".join([*parts, "::: hudi_ingest.exceptions\n"])
        )
    return None


def configuration(pages: Path, site: Path) -> dict[str, Any]:
    """Return mkdocs' settings."""
    others = sorted(page.relative_to(pages).as_posix() for page in pages.rglob("*.md"))
    listed = {page for section in SECTIONS.values() for page in section}
    return {
        "site_name": "hudi-ingest",
        "site_description": "Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster",
        "docs_dir": str(pages),
        "site_dir": str(site),
        "nav": [{title: [*section]} for title, section in SECTIONS.items()],
        "not_in_nav": "\n".join(f"/{page}" for page in others if page not in listed),
        "theme": {
            "name": "material",
            "font": False,
            "features": [
                "navigation.sections",
                "navigation.top",
                "search.suggest",
                "search.highlight",
                "content.code.copy",
            ],
            "palette": [
                {"media": f"(prefers-color-scheme: {name})", "scheme": scheme}
                for name, scheme in (("light", "default"), ("dark", "slate"))
            ],
        },
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {
                        "python": {
                            "paths": [str(pages.parent / "code")],
                            "options": {
                                "show_source": False,
                                "show_root_heading": True,
                                "show_root_full_path": False,
                                "heading_level": 2,
                                "members_order": "source",
                                "separate_signature": True,
                            },
                        }
                    }
                }
            },
        ],
        "markdown_extensions": [
            "tables",
            "attr_list",
            "pymdownx.superfences",
            "pymdownx.highlight",
            {"toc": {"permalink": True, "slugify": None}},
        ],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
            "links": {
                "not_found": "warn",
                "anchors": "warn",
                "absolute_links": "warn",
                "unrecognized_links": "warn",
            },
        },
    }


def llms_text(pages: Path) -> str:
    """Return llms.txt: what the project is, and each page's address, title and introduction, for programs that read it."""
    lines = ["# hudi-ingest", "", "> Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster.", ""]
    for title, section in SECTIONS.items():
        lines += [f"## {title}", ""]
        for page in section:
            text = (pages / page).read_text(encoding="utf-8")
            heading, _, rest = text.removeprefix(_LAST_IN_SEARCH).partition("\n")
            paragraphs = [part for part in rest.split("\n\n") if part.strip() and not part.lstrip().startswith("<!--")]
            about = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraphs[0]).split()) if paragraphs else ""
            lines.append(f"- [{heading.removeprefix('# ')}]({page}): {about}")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    pages, site = folder / "pages", folder / "site"
    lay_out(pages)
    lay_out_code(folder / "code")
    settings = yaml.safe_dump(configuration(pages, site), sort_keys=False)
    # A function, which plain YAML cannot name: anchors as in the repository's pages.
    settings = settings.replace(
        "slugify: null", "slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    )
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    # Its theme advertises a successor otherwise.
    if subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode:
        sys.exit(1)
    for page in pages.rglob("*.md"):
        target = site / page.relative_to(pages)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    (site / "llms.txt").write_text(llms_text(pages), encoding="utf-8")
    sys.stdout.write(f"{site / 'index.html'}\n")


if __name__ == "__main__":
    main()
