// The one header that knows CAF's versions: 0.17 (Debian 12) and 1.x differ in inspection and in how messages are sent.
// Everything else in actors/ uses class-based actors, message structs and the functions below.
#pragma once

#include <caf/all.hpp>
#include <utility>

#include "runtime/core/ids.hpp"

namespace maestro {

/// Inspection of a message struct: `return inspect_fields(f, "PieceOut", x.edge, x.rows);`.
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

/// Ids travel as their integer.
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

template <class Self, class Receiver, class... Message>
void tell(Self* self, const Receiver& receiver, Message&&... message) {
#if CAF_VERSION >= 10000
  self->mail(std::forward<Message>(message)...).send(receiver);
#else
  self->send(receiver, std::forward<Message>(message)...);
#endif
}

/// From outside any actor: device threads, the progress thread, signal handling.
template <class Receiver, class... Message>
void tell_from_outside(const Receiver& receiver, Message&&... message) {
#if CAF_VERSION >= 10000
  caf::anon_mail(std::forward<Message>(message)...).send(receiver);
#else
  caf::anon_send(receiver, std::forward<Message>(message)...);
#endif
}

}  // namespace maestro
