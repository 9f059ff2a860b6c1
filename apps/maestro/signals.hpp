// Ctrl-C where there is nothing to save. main() blocks signals, so that a run can end in order.
#pragma once

#include <signal.h>

namespace maestro {

/// While one lives, SIGINT and SIGTERM end the program at once, as they would any other. Belongs to main's thread.
class SignalsEndTheProgram {
 public:
  SignalsEndTheProgram() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &signals, &before_);
  }
  ~SignalsEndTheProgram() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsEndTheProgram(const SignalsEndTheProgram&) = delete;
  SignalsEndTheProgram& operator=(const SignalsEndTheProgram&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace maestro
