// What a process of a job between hosts shows its peers: a certificate of the job's authority, and the job's token.
#pragma once

#include <filesystem>
#include <string>

namespace maestro {

struct KeySet {
  std::filesystem::path folder;
  std::filesystem::path certificate;  ///< PEM, of this process; with its chain
  std::filesystem::path key;          ///< PEM, private
  std::filesystem::path authority;    ///< PEM, whose signature makes a certificate one of this job
  std::string token;                  ///< secret of the job
};

}  // namespace maestro
