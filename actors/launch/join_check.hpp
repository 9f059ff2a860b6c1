// SPDX-License-Identifier: Apache-2.0
// Checks the join requests of a job's processes: admits each, and reports whether all have joined. Pure.
//
// GA-1 (admission): a process is admitted only if its token, version, number of processes and job equal rank 0's and
//       its rank is free. The checks run in this order: a process without the token learns nothing else.
// GA-2 (blame): a process without the token is refused, and only that process. Any other mismatch is within this job,
//       and the job cannot begin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace maestro {

/// Description of a process, which the process sends.
struct JoinRequest {
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::int64_t pid = 0;
  std::string host;  ///< name that the process gives its host
  std::int64_t local_rank = 0;
  std::string version;  ///< version of maestro
  std::string token;    ///< token of the job; empty: none is set
  std::string job;      ///< effective job, TOML, and all other data that must be equal in all processes
};

/// Reason why a process was not admitted, a single line.
struct Refusal {
  std::string reason;
  bool for_all = false;  ///< the job cannot begin
};

class JoinCheck {
 public:
  /// `root`: request of rank 0, which is present from the start. `hosts`: hosts by rank; a running job may have more
  /// ranks than JoinRequest::processes, the number at the start.
  JoinCheck(JoinRequest root, std::vector<std::uint32_t> hosts);

  /// Returns whether the request has the job's token.
  [[nodiscard]] bool knows_token(const JoinRequest& process) const;
  /// Admits the process, or returns why it is refused.
  [[nodiscard]] std::optional<Refusal> admit(const JoinRequest& process);
  [[nodiscard]] bool complete() const { return present_.size() == hosts_.size(); }
  /// Returns the admitted processes by rank, with rank 0.
  [[nodiscard]] std::vector<JoinRequest> present() const;
  /// Returns "processes 2 and 3 (host 1)", "process 1 (host 0), processes 2-7 (host 1)"; empty when complete.
  [[nodiscard]] std::string missing_text() const;

 private:
  [[nodiscard]] std::string with_root(const std::string& of_root, const std::string& of_other,
                                      const JoinRequest& other) const;

  JoinRequest root_;
  std::vector<std::uint32_t> hosts_;
  std::map<std::int64_t, JoinRequest> present_;  // by rank
};

/// Returns "rank 2 (pid 4711 on alpha)".
[[nodiscard]] std::string process_name(const JoinRequest& process);

/// Returns the first setting that differs between two jobs: "student.lr = 0.001 on a (rank 0), 0.0003 on b (rank 1)";
/// empty: none. Jobs are TOML as JobDocument::to_toml writes it: every setting begins a line.
[[nodiscard]] std::string job_difference(const JoinRequest& a, const JoinRequest& b);

}  // namespace maestro
