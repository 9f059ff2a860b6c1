// SPDX-License-Identifier: Apache-2.0
// Calls of Python from threads of a run.
//
// YL-1 (the interpreter's lock): every call takes it, so that any thread of a run may call. No other lock is held
//       meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <maestro/app.hpp>
#include <memory>
#include <string>
#include <utility>

namespace maestro::python {

/// Returns "ValueError: text (script.py:12)", without the traceback. The caller holds the interpreter's lock.
[[nodiscard]] std::string line_of(nanobind::python_error& problem);

/// Calls `call` with the interpreter's lock. If Python raises, throws JobError with `what` before the raised text.
template <class Call>
auto with_python(const std::string& what, Call call) {
  const nanobind::gil_scoped_acquire locked;
  try {
    return call();
  } catch (nanobind::python_error& problem) {
    throw JobError(what + ": " + line_of(problem));
  } catch (const nanobind::cast_error&) {
    throw JobError(what + " returns a value of another type than documented");
  }
}

/// An object that copies may share without the interpreter's lock, which only its last owner takes, to let it go.
class SharedObject {
 public:
  SharedObject() = default;
  /// The caller holds the interpreter's lock.
  explicit SharedObject(nanobind::object object)
      : object_(new nanobind::object(std::move(object)), [](nanobind::object* held) {
          const nanobind::gil_scoped_acquire locked;
          delete held;
        }) {}
  /// The caller holds the interpreter's lock.
  [[nodiscard]] const nanobind::object& get() const { return *object_; }

 private:
  std::shared_ptr<nanobind::object> object_;
};

}  // namespace maestro::python
