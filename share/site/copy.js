// SPDX-License-Identifier: Apache-2.0
// A button at each code block copies the block; of a session, only its commands.
"use strict";

/// Returns the lines after "$ " with the lines that continue them, or all lines of a block that is not a session.
function copiedText(code) {
  const text = code.textContent;
  if (!code.classList.contains("language-console")) return text;
  const commands = text.match(/^\$ (?:.*\\\n)*.*$/gm) ?? [];
  return commands.map((command) => command.slice(2) + "\n").join("");
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");  // pages from a host without TLS have no clipboard
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

for (const code of document.querySelectorAll(".rst-content pre > code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copy(copiedText(code));
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.parentElement.append(button);
}
