C@ tasks: 2
C@ deadlock: 0 1
C@ says: pvm_recv({1}, tag 8): {1} waits itself
C@ says: a circle of waits: {0} -> {1} -> {0}.
C     Each receives before it sends.
      PROGRAM CIRCLE
      INCLUDE 'fpvm3.h'
      INTEGER MINE, TIDS(2), OTHER, COUNT, BUFID, I

      CALL PVMFMYTID(MINE)
      OTHER = 0
      CALL PVMFSIBLINGS(COUNT, 0, TIDS(1))
      DO 10 I = 1, COUNT
         CALL PVMFSIBLINGS(COUNT, I - 1, TIDS(1))
         IF (TIDS(1) .NE. MINE) OTHER = TIDS(1)
   10 CONTINUE
      CALL PVMFRECV(OTHER, 8, BUFID)
      END
