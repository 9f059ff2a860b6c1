// SPDX-License-Identifier: Apache-2.0
#include "actors/messages/run_actor.hpp"

#include <new>
#include <system_error>

namespace maestro {

std::string describe(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::system_error& refused) {
    if (refused.code() != std::errc::resource_unavailable_try_again) return refused.what();
    return "cannot start another thread: raise `ulimit -u`, `ulimit -v`, the memory limit or the control group's "
           "pids.max";
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace maestro
