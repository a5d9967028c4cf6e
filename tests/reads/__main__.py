"""`python -m tests.reads`: what becomes of every field that the reference libraries read, by their source."""

from collections import Counter

import transformers

from tests.reads import entries, library, sidecars


def main() -> int:
    """Prints the counts, and every field without an entry; 1 if there is one."""
    counts: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    classes = entries.published()
    for architecture, readers in classes.items():
        for name, modules in library.fields(getattr(transformers, architecture)).items():
            for family, head in readers:
                found = entries.what(family, head, name, modules)
                counts[found] += 1
                if found == "none":
                    missing.setdefault(f"{name}, which {', '.join(sorted(modules))} reads", []).append(architecture)
    for name, of in missing.items():
        print(f"no entry: {name}, of {len(of)} classes such as {of[0]}")
    print(f"{len(classes)} classes of transformers {transformers.__version__}, {sum(counts.values())} fields:")
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    for file, found in sidecars.outcomes().items():
        absent = [name for name, what in found.items() if what == "none"]
        of_file = ", ".join(f"{n} {what}" for what, n in Counter(found.values()).most_common())
        print(f"{file}: {len(found)} fields: {of_file}", *absent)
        counts["none"] += len(absent)
    return 1 if counts["none"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
