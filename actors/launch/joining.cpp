// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/joining.hpp"

#include "actors/launch/Rendezvous.h"
#include "runtime/core/printable.hpp"

namespace maestro {

std::string peer_text(std::string_view text) {
  constexpr std::size_t most = 2000;
  return printable(text, most);
}

rendezvous::Joining wire_form(const JoinRequest& request) {
  rendezvous::Joining joining;
  joining.rank = request.rank;
  joining.processes = request.processes;
  joining.pid = request.pid;
  joining.host = request.host;
  joining.local_rank = request.local_rank;
  joining.version = request.version;
  joining.token = request.token;
  joining.job = request.job;
  return joining;
}

JoinRequest request_of(const rendezvous::Joining& joining) {
  return {.rank = joining.rank,
          .processes = joining.processes,
          .pid = joining.pid,
          .host = printable(joining.host),
          .local_rank = joining.local_rank,
          .version = printable(joining.version),
          .token = joining.token,
          .job = joining.job};
}

}  // namespace maestro
