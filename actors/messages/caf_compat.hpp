// SPDX-License-Identifier: Apache-2.0
// The only header that depends on CAF's version: 0.17 (Debian 12) and 1.x differ in inspection and in sending messages.
// Everything else in actors/ uses class-based actors, message structs and the functions below.
#pragma once

#include <caf/all.hpp>
#include <exception>
#include <string>
#include <utility>

#include "runtime/core/ids.hpp"

namespace maestro {

/// Returns "out of memory" for std::bad_alloc, else the exception's what().
[[nodiscard]] std::string describe(const std::exception_ptr& problem);

/// Inspects a message struct: `return inspect_fields(f, "PieceOut", x.edge, x.rows);`.
#if CAF_VERSION < 1800
template <class Inspector, class... Fields>
auto inspect_fields(Inspector& f, const char* name, Fields&... fields) {
  return f(caf::meta::type_name(name), fields...);
}
#define MAESTRO_INSPECT(Type, ...)                                 \
  template <class Inspector>                                       \
  typename Inspector::result_type inspect(Inspector& f, Type& x) { \
    return ::maestro::inspect_fields(f, #Type, __VA_ARGS__);       \
  }
#else
template <class Inspector, class T, class... Fields>
bool inspect_object(Inspector& f, T& x, Fields&... fields) {
  return f.object(x).fields(f.field("field", fields)...);
}
#define MAESTRO_INSPECT(Type, ...)                       \
  template <class Inspector>                             \
  bool inspect(Inspector& f, Type& x) {                  \
    return ::maestro::inspect_object(f, x, __VA_ARGS__); \
  }
#endif

/// Serializes an id as an integer.
template <class Inspector, class Tag, class Integer>
auto inspect(Inspector& f, Id<Tag, Integer>& id) {
  Integer value = id.value();
  if constexpr (Inspector::writes_state) {
    auto result = f(value);
    id = Id<Tag, Integer>(value);
    return result;
  } else {
    return f(value);
  }
}

/// Report the order of messages to ThreadSanitizer, which does not see the atomics inside CAF's library that order a
/// sender's writes before the receiver's reads: call one before sending, the other before a handler.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
template <class Receiver>
void order_before_send(const Receiver& receiver) {
  if (const auto held = caf::actor_cast<caf::strong_actor_ptr>(receiver)) __tsan_release(held.get());
}
inline void order_after_receipt(caf::local_actor& self) {
  __tsan_acquire(self.ctrl());
}
#else
template <class Receiver>
void order_before_send(const Receiver&) {}
inline void order_after_receipt(caf::local_actor&) {}
#endif

template <class Self, class Receiver, class... Message>
void send_to(Self* self, const Receiver& receiver, Message&&... message) {
  order_before_send(receiver);
#if CAF_VERSION >= 10000
  self->mail(std::forward<Message>(message)...).send(receiver);
#else
  self->send(receiver, std::forward<Message>(message)...);
#endif
}

/// Makes `self` handle only these messages and ignore all others. Requests get an empty answer: caf::drop would answer
/// every message with an error.
inline void ignore_other_messages(caf::event_based_actor* self, caf::behavior handled) {
#if CAF_VERSION >= 10000
  self->set_default_handler(
      [](caf::scheduled_actor*, caf::message&) -> caf::skippable_result { return caf::message(); });
#else
  self->set_default_handler(
      [](caf::scheduled_actor*, caf::message_view&) -> caf::result<caf::message> { return caf::message(); });
#endif
  self->become(std::move(handled));
}

/// Calls `report` with a single line for every event that would end `self` unexpectedly or that CAF would print: an
/// exception, an error message, a message without a handler. The actor ends after the call, except after a message
/// without a handler.
template <class Report>
void report_every_end(caf::event_based_actor* self, Report report) {
  self->set_exception_handler([report](caf::scheduled_actor*, std::exception_ptr& problem) -> caf::error {
    report(describe(problem));
    return caf::exit_reason::unhandled_exception;
  });
  self->set_error_handler([report](caf::scheduled_actor* actor, caf::error& problem) {
    report("error message: " + actor->home_system().render(problem));
    actor->quit(problem);
  });
#if CAF_VERSION >= 10000
  self->set_default_handler([report](caf::scheduled_actor*, caf::message& message) -> caf::skippable_result {
    report("unexpected message " + caf::to_string(message));
    return caf::make_error(caf::sec::unexpected_message);
  });
#else
  self->set_default_handler([report](caf::scheduled_actor*, caf::message_view& message) -> caf::result<caf::message> {
    report("unexpected message " + message.content().stringify());
    return caf::make_error(caf::sec::unexpected_message);
  });
#endif
}

/// Releases the logger of the actor system, which a thread that has had a scoped actor keeps until it ends; the
/// system's destructor waits for the release.
inline void leave_actor_system() {
#if CAF_VERSION >= 10000
  caf::logger::current_logger(nullptr);
#else
  caf::logger::set_current_actor_system(nullptr);
#endif
}

/// Sends a message from outside any actor, such as device threads, the progress thread and signal handling.
template <class Receiver, class... Message>
void send_from_outside(const Receiver& receiver, Message&&... message) {
  order_before_send(receiver);
#if CAF_VERSION >= 10000
  caf::anon_mail(std::forward<Message>(message)...).send(receiver);
#else
  caf::anon_send(receiver, std::forward<Message>(message)...);
#endif
}

}  // namespace maestro
