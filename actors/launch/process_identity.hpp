// Which process a file belongs to, by its name, and whether that process still exists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace maestro {

/// "<boot>-<pid namespace>-<pid>-<start time>" of this process: no other process has or had it. Of hexadecimal digits
/// and
/// "-".
[[nodiscard]] std::string process_identity();

/// Whether `text` begins with the identity of a process that was of this boot and this pid namespace, and is dead.
/// False where that cannot be seen from here.
[[nodiscard]] bool is_of_dead_process(std::string_view text);

/// Whether a signal has stopped it (SIGSTOP, Ctrl-Z, a debugger). False when there is no such process.
[[nodiscard]] bool is_stopped(std::int64_t pid);

}  // namespace maestro
