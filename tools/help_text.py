"""The texts of src/cli/help: paragraphs as people edit them, and as the command and the manual pages print them.

    A paragraph is filled over lines,        its lines are joined with one space
    a blank line ends it.
    A line may end with two words and \\      here the output's line ends too, within the paragraph
      a line that begins with a space        an example, kept as it is
    @include NAME.txt                        the text of that file, beside this one
"""
import pathlib


def lines(path: pathlib.Path) -> list[str]:
    """One entry per paragraph, example or blank line."""
    result: list[str] = []
    open_paragraph = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("@include "):
            result += lines(path.parent / line.removeprefix("@include ").strip())
            open_paragraph = False
            continue
        example = line.startswith(" ")
        ends = not example and line.endswith("\\")
        text = line[:-1].rstrip() if ends else line
        if open_paragraph and text and not example:
            result[-1] += " " + text
        else:
            result.append(text)
        open_paragraph = bool(text) and not example and not ends
    return result
