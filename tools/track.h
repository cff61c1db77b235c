// The command line that all tracks share.
#ifndef TOOLS_TRACK_H_
#define TOOLS_TRACK_H_

namespace tools {

struct Track {
  const char* name;    // of the program
  const char* record;  // that is trained without --record
};

// Parses the flags, runs what they say, and returns the process's exit code.
int TrackMain(const Track& track, int argc, char** argv);

}  // namespace tools

#endif  // TOOLS_TRACK_H_
