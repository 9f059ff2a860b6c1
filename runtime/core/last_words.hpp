// SPDX-License-Identifier: Apache-2.0
// The end of a process after an exception that no code catches: an error line, and an exit in bounded time.
#pragma once

namespace maestro {

/// Call early in main. From then on an exception that leaves a thread prints a single line, "error: thread NAME: ...",
/// and ends the process with status 1; and a reserve of memory is released when memory first runs out, so that the
/// error can be built and sent.
void prepare_last_words();

}  // namespace maestro
