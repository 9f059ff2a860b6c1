// SPDX-License-Identifier: Apache-2.0
// What a process leaves behind when an exception has reached nobody: one line, and an end within bounds.
#pragma once

namespace maestro {

/// Call early in main. From then on an exception that leaves a thread prints one line, "error: thread NAME: ...", and
/// ends the process with status 1; and a reserve of memory is released when memory runs out first, so that the error
/// about it can be made and sent.
void prepare_last_words();

}  // namespace maestro
