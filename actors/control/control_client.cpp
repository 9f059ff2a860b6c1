// SPDX-License-Identifier: Apache-2.0
#include "actors/control/control_client.hpp"

#include <algorithm>

#include "actors/control/Control.h"
#include "actors/control/control_place.hpp"
#include "actors/control/control_text.hpp"
#include "actors/launch/listen_address.hpp"
#include "actors/rpc/rpc_client.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;

// The service answers a pause within 30 s and a checkpoint within 10 min.
constexpr milliseconds usual_patience(5000);
constexpr milliseconds pause_patience(40000);
constexpr milliseconds join_patience(15000);
constexpr milliseconds checkpoint_patience(620000);

std::string first_line(const std::filesystem::path& file) {
  const std::string text = read_text(file).value_or_throw();
  return text.substr(0, text.find('\n'));
}

/// Returns the run's token in this user's runtime folder; empty if there is none.
std::string left_token(const std::string& address) {
  std::error_code unknown;
  const std::filesystem::path file = token_file(address);
  return std::filesystem::exists(file, unknown) ? first_line(file) : std::string();
}

}  // namespace

struct ControlClient::State {
  explicit State(const ControlTarget& target) : connection(options_of(target)), client(connection.protocol()) {
    const SocketAddress address = parse_socket_address(options.address);
    if (!target.token_file.empty()) {
      token = first_line(target.token_file);
    } else if (options.keys) {
      token = options.keys->token;
    } else if (!address.local()) {
      token = left_token(options.address);
    }
  }
  ConnectionOptions options_of(const ControlTarget& target) {
    options.address = target.address;
    options.service = "control service";
    options.answer_patience = usual_patience;
    // Only a service on a loopback address writes its token on this host and works without TLS. A service on all
    // addresses uses TLS on loopback, too.
    const SocketAddress address = parse_socket_address(options.address);
    const bool plain = address.local() || (on_this_host_only(address) && !left_token(options.address).empty());
    options.may_want_tls = !plain;
    if (!target.keys.empty() && !plain) options.keys = std::make_shared<const KeySet>(load_key_set(target.keys));
    return options;
  }
  template <class Answer, class Call>
  Answer query(milliseconds patience, Call&& call) {
    connection.set_answer_patience(patience);
    Answer answer;
    try {
      connection.invoke([&] { call(answer); });
    } catch (const control::Refused& refused) {
      throw JobError("the run at " + options.address + " refuses: " + refused.reason, ErrorCode::unavailable);
    }
    return answer;
  }

  /// Throws JobError if the run does not answer. Without this check a call to a stopped process would take effect when
  /// the process continues, long after its client has ended.
  void check_answers() {
    (void)query<control::Status>(usual_patience, [&](auto& to) { client.status(to, token); });
  }

  std::string token;
  ConnectionOptions options;
  RpcClient connection;
  control::ControlClient client;
};

ControlClient::ControlClient(const ControlTarget& target) : state_(std::make_unique<State>(target)) {}
ControlClient::~ControlClient() = default;

std::string ControlClient::call(const std::string& name, Form form) {
  State& state = *state_;
  control::ControlClient& client = state.client;
  const auto shown = [&](const auto& answer) { return form == Form::json ? json_text(answer) : plain_text(answer); };
  if (name == "status") {
    return shown(state.query<control::Status>(usual_patience, [&](auto& to) { client.status(to, state.token); }));
  }
  if (name == "plan") {
    return shown(state.query<control::Plan>(usual_patience, [&](auto& to) { client.plan(to, state.token); }));
  }
  state.check_answers();
  if (name == "checkpoint") {
    return shown(
        state.query<control::Checkpoint>(checkpoint_patience, [&](auto& to) { client.checkpoint(to, state.token); }));
  }
  return shown(state.query<control::Standing>(pause_patience, [&](auto& to) {
    if (name == "pause") return client.pause(to, state.token);
    if (name == "resume") return client.resume(to, state.token);
    client.stop(to, state.token);
  }));
}

RunGlance ControlClient::glance() {
  State& state = *state_;
  const auto status =
      state.query<control::Status>(usual_patience, [&](auto& to) { state.client.status(to, state.token); });
  RunGlance glance;
  glance.ends = status.state == control::State::STOPPING || status.state == control::State::FINISHED;
  glance.job = status.job;
  glance.state = state_text(status);
  glance.step = status.step;
  glance.steps = status.steps;
  glance.text = plain_text(status);
  glance.heading = glance.text.substr(0, glance.text.find('\n'));
  return glance;
}

MetricsPage ControlClient::metrics(std::int64_t first_step_row, std::int64_t first_validation_row, std::int32_t most) {
  State& state = *state_;
  const auto answer = state.query<control::Metrics>(usual_patience, [&](auto& to) {
    state.client.metrics(to, state.token, first_step_row, first_validation_row, most);
  });
  MetricsPage page{{}, answer.next_step_row, answer.next_validation_row};
  page.lacks_rows = (first_step_row >= 0 && answer.first_step_row > first_step_row) ||
                    (first_validation_row >= 0 && answer.first_validation_row > first_validation_row);
  for (const control::Row& row : answer.steps) page.rows.push_back({false, row.section, row.step, row.metrics});
  for (const control::Row& row : answer.validations) page.rows.push_back({true, row.section, row.step, row.metrics});
  std::ranges::stable_sort(page.rows, {}, &MetricsRow::step);
  return page;
}

const std::string& ControlClient::address() const {
  return state_->options.address;
}

JoinTerms ControlClient::join(const std::string& section, const std::string& devices) {
  State& state = *state_;
  state.check_answers();
  const auto terms = state.query<control::JoinTerms>(
      join_patience, [&](auto& to) { state.client.join(to, state.token, section, devices, host_name()); });
  JoinTerms result{ProcessId(static_cast<std::uint32_t>(terms.process)), terms.command, terms.variables, terms.folder};
  const bool same_host = on_this_host_only(parse_socket_address(state.options.address));
  const auto& keys = state.options.keys;
  if (keys && !same_host) result.variables.push_back("MAESTRO_KEYS=" + keys->folder.string());
  return result;
}

std::string ControlClient::leave(std::int32_t process, Form form) {
  State& state = *state_;
  state.check_answers();
  const auto answer =
      state.query<control::Leaving>(join_patience, [&](auto& to) { state.client.leave(to, state.token, process); });
  return form == Form::json ? json_text(answer) : plain_text(answer);
}

}  // namespace maestro
