// SPDX-License-Identifier: Apache-2.0
// Who has come to a job's rendezvous, and whether they may begin together. Pure.
//
// GA-1: a process is admitted only when its token, version, number of processes and job are those of rank 0, and nobody
//       has its rank; it is judged in this order, so that who has no token learns nothing else.
// GA-2: one without the token is refused alone. Any other that does not fit is of this job, which therefore cannot
// begin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace maestro {

/// What a process says of itself.
struct JoinRequest {
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::int64_t pid = 0;
  std::string host;  ///< its own name
  std::int64_t local_rank = 0;
  std::string version;  ///< of maestro
  std::string token;    ///< of the job; empty: none was given
  std::string job;      ///< effective job, TOML, and whatever else must be the same in all processes
};

/// Why a process was not admitted, in one line.
struct Refusal {
  std::string reason;
  bool for_all = false;  ///< the job cannot begin
};

class JoinCheck {
 public:
  /// Begins with rank 0 itself. `hosts`: by rank.
  JoinCheck(JoinRequest root, std::vector<std::uint32_t> hosts);

  /// Whether it has the token of the job.
  [[nodiscard]] bool knows_token(const JoinRequest& process) const;
  /// Nothing: it is admitted.
  [[nodiscard]] std::optional<Refusal> admit(const JoinRequest& process);
  [[nodiscard]] bool complete() const { return static_cast<std::int64_t>(present_.size()) == root_.processes; }
  /// By rank, rank 0 among them.
  [[nodiscard]] std::vector<JoinRequest> present() const;
  /// "processes 2 and 3 (host 1)", "process 1 (host 0), processes 2-7 (host 1)"; empty when complete.
  [[nodiscard]] std::string missing_text() const;

 private:
  [[nodiscard]] std::string with_root(const std::string& of_root, const std::string& of_other,
                                      const JoinRequest& other) const;

  JoinRequest root_;
  std::vector<std::uint32_t> hosts_;
  std::map<std::int64_t, JoinRequest> present_;  // by rank
};

/// "rank 2 (pid 4711 on alpha)".
[[nodiscard]] std::string process_name(const JoinRequest& process);

/// "student.lr = 0.001 on a (rank 0), 0.0003 on b (rank 1)": the first setting in which two jobs differ; empty: none.
/// Jobs are TOML as JobDocument::to_toml writes it: a setting begins on a line of its own.
[[nodiscard]] std::string job_difference(const JoinRequest& a, const JoinRequest& b);

}  // namespace maestro
