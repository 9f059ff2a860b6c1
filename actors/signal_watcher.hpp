// Ctrl-C and SIGTERM as calls on a thread of their own. Signals must be blocked before any other thread starts.
#pragma once

#include <functional>
#include <thread>

namespace maestro {

/// Blocks SIGINT and SIGTERM in the calling thread and those it starts later; ignores SIGPIPE. Call first in main.
void block_signals();

class SignalWatcher {
 public:
  /// `on_signal` gets 1 for the first signal, 2 for the second and so on.
  explicit SignalWatcher(std::function<void(int count)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void run();
  std::function<void(int)> on_signal_;
  int stop_event_;
  std::thread thread_;
};

}  // namespace maestro
