// SPDX-License-Identifier: Apache-2.0
// All of every room in one program: two rooms that define the same name do not link, which a test of one room, and a
// program that happens to need only one of the two, would never show.
int main() {
  return 0;
}
