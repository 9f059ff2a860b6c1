// SPDX-License-Identifier: Apache-2.0
// Calls of Python from threads of a run.
//
// YL-1 (the interpreter's lock): every call takes it, so that any thread of a run may call. No other lock is held
//       meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <deque>
#include <maestro/app.hpp>
#include <memory>
#include <string>
#include <utility>

namespace maestro::python {

/// Returns "ValueError: text (script.py:12)", without the traceback. The caller holds the interpreter's lock.
[[nodiscard]] std::string line_of(nanobind::python_error& problem);

/// Exceptions that calls of a run have raised, with their tracebacks: the first ones and the newest. Callers hold the
/// interpreter's lock.
class RaisedExceptions {
 public:
  static RaisedExceptions& of_process();
  /// Keeps an exception whose text in errors of the run is `text`.
  void keep(std::string text, nanobind::python_error& problem);
  /// Returns the exception that caused a run's error, or None.
  [[nodiscard]] nanobind::object cause_of(const std::string& error) const;
  void clear() { kept_.clear(); }

 private:
  std::deque<std::pair<std::string, nanobind::object>> kept_;
};

/// Calls `call` with the interpreter's lock. If Python raises, throws JobError with `what` before the raised text.
template <class Call>
auto with_python(const std::string& what, Call call) {
  const nanobind::gil_scoped_acquire locked;
  try {
    return call();
  } catch (nanobind::python_error& problem) {
    const std::string text = what + ": " + line_of(problem);
    RaisedExceptions::of_process().keep(text, problem);
    throw JobError(text);
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
