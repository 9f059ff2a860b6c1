# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml: pages of docs/ keep their links as they are read in the repository.

Documents outside docs/ become pages (PAGES); invariants.md and api.md are made from the headers. A link to any other
file of the repository leads to a copy of it below source/, as plain text; a link to a folder is its label. Pages work
when they are opened from disk: links name files, and the search needs no server (search.js).
"""
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "share/site"
sys.path[:0] = [str(ROOT / "tests/build"), str(SITE)]
import api_page  # noqa: E402
import check_docs  # noqa: E402

MADE = {"invariants.md": check_docs.invariant_page, "api.md": api_page.page}
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
         "benchmarks/README.md": "benchmarks.md", "clients/python/README.md": "python-client.md"}
PAGES |= {f"benchmarks/{page.parent.name}/README.md": f"bench-{page.parent.name}.md"
          for page in ROOT.glob("benchmarks/*/README.md")}
SOURCES = {uri: path for path, uri in PAGES.items()}
CODE_OR_LINK = re.compile(r"^```.*?^```$|(`+).+?\1|(!?\[)((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)", re.S | re.M)
copies = set()


def on_pre_build(config):
    copies.clear()


def on_files(files, config):
    for uri in (*SOURCES, *MADE):
        files.append(File(uri, config["docs_dir"], config["site_dir"], config["use_directory_urls"]))
    for script in config["extra_javascript"]:
        if (SITE / script).is_file():
            files.append(File(script, str(SITE), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_read_source(page, config):
    if page.file.src_path in MADE:
        return MADE[page.file.src_path](ROOT)
    path = SOURCES.get(page.file.src_path)
    return (ROOT / path).read_text(encoding="utf-8") if path else None


def target_of(link, folder):
    """The link of a page for the link of a document in `folder`; None for a folder of the repository."""
    path, anchor = re.fullmatch(r"([^#]*)(#.*)?", link).groups()
    path = posixpath.normpath(posixpath.join(folder, path))
    if path in PAGES:
        return PAGES[path] + (anchor or "")
    if path.startswith("docs/"):
        return path.removeprefix("docs/") + (anchor or "")
    if (ROOT / path).is_dir():
        return None
    copies.add(path)
    return f"source/{path}.txt"


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(SOURCES.get(page.file.src_path, f"docs/{page.file.src_path}"))

    def rewrite(match):
        opening, label, link = match[2], match[3], match[4]
        if link is None:  # in tables `\|` is read as it stands on GitHub only
            return match[0] if match[0].startswith("```") else match[0].replace("\\|", "|")
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        target = target_of(link, folder)
        if target is None:
            return label
        if target.startswith("source/"):  # as HTML, which mkdocs does not look for among its pages
            return f'<a href="{target}">{label}</a>'
        return f"{opening}{label}]({target})"

    return CODE_OR_LINK.sub(rewrite, markdown)


def on_page_content(html, page, config, files):
    """Short code, and the options of longer code, are not broken at their hyphens."""
    def mark(match):
        if len(match[1]) <= 28:
            return f'<code class="whole">{match[1]}</code>'
        return "<code>" + re.sub(r"(?<![\w-])\[*--[\w-]+", r'<span class="whole">\g<0></span>', match[1]) + "</code>"

    return re.sub(r"(?<!<pre>)<code>([^<\n]+)</code>", mark, html)


def on_post_page(output, page, config):
    """A link to the home page names its file: from disk a folder would be listed."""
    return re.sub(r'href="(?:\./)?\."', 'href="index.html"', output)


def on_post_template(output_content, template_name, config):
    return on_post_page(output_content, None, config)


def replace_search(folder):
    """The search of mkdocs needs a server, the search of this folder does not."""
    (folder / "index.js").write_text("const searchIndex = " + (folder / "search_index.json").read_text(encoding="utf-8") + ";\n",
                                     encoding="utf-8")
    shutil.copyfile(SITE / "search.js", folder / "main.js")
    for file in ("search_index.json", "worker.js"):
        (folder / file).unlink()


def add_missing_scripts(site):
    """Debian's package (1.4.2) has jQuery under another name than its pages do, and lacks scripts that they can do without."""
    for name in re.findall(r'<script src="js/([^"]+)"', (site / "index.html").read_text(encoding="utf-8")):
        if not (site / "js" / name).exists():
            found = sorted((site / "js").glob("jquery-*")) if name.startswith("jquery") else []
            (site / "js" / name).write_bytes(found[0].read_bytes() if found else b"")


def on_post_build(config):
    add_missing_scripts(Path(config["site_dir"]))
    replace_search(Path(config["site_dir"], "search"))
    for path in copies:
        copy = Path(config["site_dir"], "source", f"{path}.txt")
        os.makedirs(copy.parent, exist_ok=True)
        shutil.copyfile(ROOT / path, copy)
