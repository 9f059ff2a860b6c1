// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/reshard/process_pair.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>

#include <array>

#include "runtime/core/result.hpp"

namespace maestro::bench {

namespace {

std::array<int, 2> connected() {
  std::array<int, 2> files{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, files.data()) != 0) {
    throw JobError("cannot connect two processes", ErrorCode::unavailable);
  }
  return files;
}

/// Runs `work` in the child and then ends it. The first byte of its message reports whether it succeeded.
[[noreturn]] void become(const std::function<std::string()>& work, const Connection& result) {
  try {
    result.send("+" + work());
    _exit(0);
  } catch (const std::exception& problem) {
    result.send(std::string("-") + problem.what());
    _exit(1);
  }
}

pid_t start(const std::function<std::string()>& work, const Connection& result) {
  const pid_t pid = fork();
  if (pid < 0) throw JobError("cannot start a process", ErrorCode::unavailable);
  if (pid == 0) become(work, result);
  return pid;
}

}  // namespace

Connection::~Connection() {
  close(file_);
}

void Connection::send(const std::string& bytes) const {
  const auto all = [this](const char* from, std::size_t count) {
    while (count > 0) {
      const ssize_t sent = ::send(file_, from, count, MSG_NOSIGNAL);
      if (sent <= 0) throw JobError("the other process is gone", ErrorCode::peer_lost);
      from += sent;
      count -= static_cast<std::size_t>(sent);
    }
  };
  const std::uint64_t size = bytes.size();
  all(reinterpret_cast<const char*>(&size), sizeof size);
  all(bytes.data(), bytes.size());
}

std::string Connection::receive() const {
  const auto all = [this](char* to, std::size_t count) {
    while (count > 0) {
      const ssize_t received = read(file_, to, count);
      if (received <= 0) throw JobError("the other process is gone", ErrorCode::peer_lost);
      to += received;
      count -= static_cast<std::size_t>(received);
    }
  };
  std::uint64_t size = 0;
  all(reinterpret_cast<char*>(&size), sizeof size);
  std::string bytes(size, '\0');
  all(bytes.data(), bytes.size());
  return bytes;
}

std::string run_in_two_processes(const std::function<std::string(const Connection&)>& first,
                                 const std::function<void(const Connection&)>& second) {
  const auto between = connected();
  const Connection own(between[0]);
  const Connection other(between[1]);
  const auto first_result = connected();
  const auto second_result = connected();
  const Connection answers(first_result[0]), answering(first_result[1]);
  const Connection endings(second_result[0]), ending(second_result[1]);
  const auto run_second = [&] {
    second(other);
    return std::string();
  };
  const std::array pids{start([&] { return first(own); }, answering), start(run_second, ending)};
  // The remaining process waits for the failed process, so it is ended.
  std::string failure;
  for (int ended = 0; ended < 2; ++ended) {
    int status = 0;
    const bool is_first = waitpid(-1, &status, 0) == pids[0];
    if (status == 0 || !failure.empty()) continue;
    failure =
        WIFEXITED(status) ? (is_first ? answers : endings).receive().substr(1) : "a process was ended by a signal";
    kill(is_first ? pids[1] : pids[0], SIGKILL);
  }
  if (!failure.empty()) throw JobError(failure);
  return answers.receive().substr(1);
}

}  // namespace maestro::bench
