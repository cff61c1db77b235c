// Trains a 350M-class GPT by a record of the NanoGPT speedrun's track 2.
#include "tools/track.h"

int main(int argc, char** argv) {
  return tools::TrackMain({.name = "track2", .record = "record7"}, argc, argv);
}
