// SPDX-License-Identifier: Apache-2.0
// print_parquet_rows FILE: prints the rows of a Parquet file as JSON Lines, for parquet_test.py. Exits with 1 after an
// error.
#include <iostream>

#include "runtime/parquet/parquet_file.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const auto file = maestro::ParquetFile::open(arguments[1]);
  if (!file) {
    std::cerr << file.error().message << std::endl;
    return 1;
  }
  for (;;) {
    const maestro::Result<bool> more = (*file)->next();
    if (!more) std::cerr << more.error().message << std::endl;
    if (!more || !*more) return more ? 0 : 1;
    std::cout << (*file)->row().json << "\n";
  }
}
