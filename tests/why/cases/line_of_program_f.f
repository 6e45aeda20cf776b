C@ tasks: 2
C@ deadlock: 0 1
C@ needs: stacks
C@ says: line_of_program_f.f:24 (lonely_): pvm_recv({1}, tag 8): {1} waits itself
C     Each receives before it sends, in a subroutine.
      PROGRAM CIRCLE
      INCLUDE 'fpvm3.h'
      INTEGER MINE, TIDS(2), OTHER, COUNT, I

      CALL PVMFMYTID(MINE)
      OTHER = 0
      CALL PVMFSIBLINGS(COUNT, 0, TIDS(1))
      DO 10 I = 1, COUNT
         CALL PVMFSIBLINGS(COUNT, I - 1, TIDS(1))
         IF (TIDS(1) .NE. MINE) OTHER = TIDS(1)
   10 CONTINUE
      CALL LONELY(OTHER)
      END

      SUBROUTINE LONELY(OTHER)
      INCLUDE 'fpvm3.h'
      INTEGER OTHER, BUFID

      CALL PVMFRECV(OTHER, 8, BUFID)
      PRINT *, BUFID
      END
